// Package lab runs a stage with a fleet of replicas, a crowd of requests and a fault. It reports
// each step of each request, and a verdict in one sentence.
//
// The errors in a run come from the stage's own code. A fault only changes the environment: it ends
// or holds a replica at a point, sets its clock, blocks its packets, makes Redis fail over, slows
// the origin down, or renames a category at a bad moment.
package lab
