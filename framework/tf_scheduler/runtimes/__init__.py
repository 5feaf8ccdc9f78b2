"""Named virtual environments for several TensorFlow versions on one machine."""
