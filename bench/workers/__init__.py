"""Programs that run.py starts; each appends its records to the file of --out."""
