package promobserver

import _ "embed"

// Dashboard is a Grafana dashboard of all metrics with their default names, ready to import. It is
// the file grafana.json of this package. It expects Prometheus' label job, and can select jobs and
// caches.
//
//go:embed grafana.json
var Dashboard []byte
