"""Upload of pictures, and download of job files."""
