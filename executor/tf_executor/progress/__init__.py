"""Progress of the training, as the program reports, prints or records it."""
