"""What a launch prepares for the program: environment, GPUs, folder, rendezvous."""
