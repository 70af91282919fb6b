"""What of JAX's inside `bufdb explain` wraps for a target of several devices."""
