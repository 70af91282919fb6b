"""What a page shows of modules: figures, values with their blocks, answers of saved queries."""
