"""What a question is asked with: texts as values, names of memory spaces, why nothing fits."""
