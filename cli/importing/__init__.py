"""Files of orders: read line by line, judged, sent in parts, reported, and gone on with where an import was cut off."""
