"""Virtual environments with one TensorFlow each, by name, so that several versions run side by side on one machine."""
