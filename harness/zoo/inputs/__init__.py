"""Real inputs: images, sentences, sounds, the user's own."""
