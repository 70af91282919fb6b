"""What a serialised module gives, as lists: fields of many messages at a time."""
