"""Views: pure functions from a snapshot of the state to a JSON body and an HTTP status."""
