"""Engines that run units of a plan elsewhere: on this host, on a Ray cluster, through Slurm."""
