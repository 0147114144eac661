package cacheguard

// Early is the decision of XFetch.
var Early = early
