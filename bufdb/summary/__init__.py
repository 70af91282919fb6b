"""One screen about what was compiled: what the saved queries say of the highest peak."""
