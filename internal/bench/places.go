//go:build linux

package bench

import "github.com/shmsync/shmsync/internal/topology"

// A placement says on which CPUs the processes of a measurement run. These placements apply to any number of processes.
const (
	PlaceSame  = "same"  // all on one CPU
	PlaceCross = "cross" // one CPU for each process, in the order of the CPUs
	PlaceAny   = "any"   // unpinned
)

// These placements choose two CPUs by what the CPUs share. They are the classes of package topology. The processes
// of a measurement get the two CPUs in turn. A full name may have a distance after a dash, and the kinds of the
// CPUs after a colon. A name without distance and kinds stands for this class with any distance and kinds.
const (
	PlaceSMT         = string(topology.SMT)
	PlaceModule      = string(topology.Module)
	PlaceLLC         = string(topology.SameLLC)
	PlaceLLCNode     = string(topology.LLCNode)
	PlaceNode        = string(topology.SameNode)
	PlaceNodePackage = string(topology.NodePackage)
	PlacePackage     = string(topology.Package)
	PlaceRemote      = string(topology.Remote)
)

// These placements are for many processes, which get the CPUs in turn. Both placements use one thread of each core
// before they use the second thread of any core.
const (
	PlacePack   = "pack"   // as near to each other as possible
	PlaceSpread = "spread" // as far from each other as possible
)

// PlaceClasses is a placement that stands for all classes of pairs of CPUs that the host has.
const PlaceClasses = "classes"

// PlaceNames are the placements that the flag --place accepts. The flag also accepts two CPUs such as 0+1, and classes
// of pairs of CPUs with a distance.
var PlaceNames = []string{
	PlaceSame, PlaceSMT, PlaceModule, PlaceLLC, PlaceLLCNode, PlaceNode, PlaceNodePackage, PlacePackage, PlaceRemote, PlaceClasses,
	PlaceCross, PlacePack, PlaceSpread, PlaceAny,
}
