"""Pages, screens, scans and icons: the training pictures of the documents prior and its two stages."""
