"""Out-of-memory messages in a log (format section 9.2): text in, one `Message` each out."""
