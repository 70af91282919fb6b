"""What a scan saves for the backward pass, and what is kept instead where that is left out."""
