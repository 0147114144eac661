// Package stage contains the protections that people put before an expensive load, in the order in
// which they learn of them: from no protection, through one lock after another, to cacheguard.
// Those before cacheguard do exactly what the literature describes, in one small file each. So if
// one has a flaw, it is a flaw of the scheme, and can be shown by force.
//
// A protection reports its steps at points with names. To force its flaw, the caller may stop the
// protection at a point, like a slow network or a garbage collector, or end it there, like a power
// cut.
//
// The example and the benchmark use this package. It promises nothing to other programs.
package stage
