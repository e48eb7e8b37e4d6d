"""Pages, screens, scans, icons: training pictures of the documents prior, and its two stages."""
