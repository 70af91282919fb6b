"""Text that went through people's hands: made plain again, or told what it is."""
