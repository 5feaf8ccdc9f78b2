"""Preparation of a program: environment, GPUs, checkpoint folder, rendezvous."""
