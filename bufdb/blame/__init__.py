"""`bufdb blame`: which version, which flag, which pass grew which buffer."""
