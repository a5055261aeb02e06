"""Model architectures and the reading of their Hugging Face configurations."""
