package promobserver

import _ "embed"

// Dashboard is a Grafana dashboard of all metrics under their default names, to be imported as it
// is: the file grafana.json of this package. It expects Prometheus' own label job, and chooses by
// it and by cache.
//
//go:embed grafana.json
var Dashboard []byte
