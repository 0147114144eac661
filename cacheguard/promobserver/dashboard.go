package promobserver

import _ "embed"

// Dashboard is a Grafana dashboard of all metrics under their default names, ready to import: the
// file grafana.json of this package. It expects Prometheus' label job, and selects by job and by
// cache.
//
//go:embed grafana.json
var Dashboard []byte
