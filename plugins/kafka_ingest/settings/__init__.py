"""Feed files, connections and requests: validated once, at the edge."""
