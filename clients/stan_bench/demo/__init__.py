"""`stan demo`: a broker, a cluster and Spark shown at work."""
