// Package stage contains the protections that people put before an expensive load, in the order in
// which they learn of them: from no protection, through one lock after another, to cacheguard. Some
// variants come after cacheguard. All protections except cacheguard do exactly what the literature
// describes, most of them in one small file. So if one of them has a flaw, this is a flaw of the
// scheme, and can be shown by force.
//
// A protection reports its steps at points with names. To force the flaw of a protection, the
// caller may hold it at a point, as a slow network or a garbage collector would, or end it there,
// as a power cut would.
//
// The example and the benchmark use this package. It promises nothing to other programs.
package stage
