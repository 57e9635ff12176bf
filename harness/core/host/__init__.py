"""What this machine is and allows."""
