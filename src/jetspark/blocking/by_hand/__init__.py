"""What the blocking client has by hand: bases of its generated classes, and whole classes."""
