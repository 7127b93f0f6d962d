//go:build linux

package bench

import "github.com/shmsync/shmsync/internal/topology"

// Placements of a cell's processes.
const (
	PlaceSame  = "same"  // all on one CPU
	PlaceCross = "cross" // one CPU each, in turn
	PlaceAny   = "any"   // unpinned
)

// Placements by what CPUs share, a CPU for each process in turn: the classes of topology. Some have a
// distance behind a dash, and the kinds of the CPUs behind a colon; without them, they stand for all
// such classes of the host.
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

// Placements of many processes, a CPU for each in turn. Both use a thread of each core before they use
// the second one of any.
const (
	PlacePack   = "pack"   // as near to each other as can be
	PlaceSpread = "spread" // as far from each other as can be
)

// PlaceClasses stands for all classes of the host.
const PlaceClasses = "classes"

// PlaceNames are the placements that --place takes, beside CPUs as in 0+1 and classes with a distance.
var PlaceNames = []string{
	PlaceSame, PlaceSMT, PlaceModule, PlaceLLC, PlaceLLCNode, PlaceNode, PlaceNodePackage, PlacePackage, PlaceRemote, PlaceClasses,
	PlaceCross, PlacePack, PlaceSpread, PlaceAny,
}
