//go:build linux

package bench

import "github.com/shmsync/shmsync/internal/topology"

// Placements of a cell's processes.
const (
	PlaceSame  = "same"  // all on one CPU
	PlaceCross = "cross" // one CPU for each process, in the order of the CPUs
	PlaceAny   = "any"   // unpinned
)

// Placements by what two CPUs share, which are the classes of package topology. Each process in turn gets a CPU. A
// full name may have a distance after a dash, and the kinds of the CPUs after a colon. A name without these stands
// for all such classes of the host.
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

// Placements of many processes. Each process in turn gets a CPU. Both placements use one thread of each core before
// they use the second thread of any core.
const (
	PlacePack   = "pack"   // as near to each other as possible
	PlaceSpread = "spread" // as far from each other as possible
)

// PlaceClasses stands for all classes of the host.
const PlaceClasses = "classes"

// PlaceNames are the placements that --place accepts. It also accepts two CPUs such as 0+1, and classes with a
// distance.
var PlaceNames = []string{
	PlaceSame, PlaceSMT, PlaceModule, PlaceLLC, PlaceLLCNode, PlaceNode, PlaceNodePackage, PlacePackage, PlaceRemote, PlaceClasses,
	PlaceCross, PlacePack, PlaceSpread, PlaceAny,
}
