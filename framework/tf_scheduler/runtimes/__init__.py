"""Named virtual environments with one TensorFlow each, so that several versions run on one machine."""
