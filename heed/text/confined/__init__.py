"""What strangers' files make heed compute, in processes of their own: chat templates, patterns of tokenizers."""
