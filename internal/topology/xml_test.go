package topology

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// xmlNew is a host in the form of version 2. It has two packages. Each package has a node, a cache, a core with two
// threads and a core with one thread. One CPU is not allowed, and the second package is slow.
const xmlNew = `<?xml version="1.0"?><!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0"><object type="Machine" os_index="0" cpuset="0x0000003f" allowed_cpuset="0x0000001f" allowed_nodeset="0x3">
<info name="CPUModel" value="made up"/><info name="OSRelease" value="6.1"/>
<object type="Package" os_index="0" cpuset="0x00000007">
 <object type="NUMANode" os_index="0" cpuset="0x00000007" local_memory="1073741824"/>
 <object type="L3Cache" cpuset="0x00000007" cache_size="8388608" depth="3" cache_type="0">
  <object type="L1iCache" cpuset="0x00000003" depth="1" cache_type="2"/>
  <object type="Core" os_index="0" cpuset="0x00000003"><object type="PU" os_index="0" cpuset="0x1"/><object type="PU" os_index="1" cpuset="0x2"/></object>
  <object type="Core" os_index="1" cpuset="0x00000004"><object type="PU" os_index="2" cpuset="0x4"/></object>
 </object></object>
<object type="Package" os_index="1" cpuset="0x00000038">
 <object type="NUMANode" os_index="1" cpuset="0x00000038" local_memory="1073741824"/>
 <object type="L3Cache" cpuset="0x00000038" cache_size="8388608" depth="3" cache_type="0">
  <object type="Core" os_index="0" cpuset="0x00000018"><object type="PU" os_index="3" cpuset="0x8"/><object type="PU" os_index="4" cpuset="0x10"/></object>
  <object type="Core" os_index="1" cpuset="0x00000020"><object type="PU" os_index="5" cpuset="0x20"/></object>
 </object></object>
</object>
<distances2 type="NUMANode" nbobjs="2" kind="5" name="NUMALatency" indexing="os"><indexes length="4">0 1 </indexes><u64values length="12">10 21 21 10 </u64values></distances2>
<distances2 type="NUMANode" nbobjs="2" kind="9" name="NUMABandwidth" indexing="os"><indexes length="4">0 1 </indexes><u64values length="12">900 100 100 900 </u64values></distances2>
<cpukind cpuset="0x07"><info name="FrequencyMaxMHz" value="4000"/></cpukind>
<cpukind cpuset="0x38"><info name="FrequencyMaxMHz" value="2000"/></cpukind>
</topology>`

// xmlOld is a host in the form of version 1. One of its CPUs is offline.
const xmlOld = `<topology><object type="Machine" cpuset="0x0000000f" complete_cpuset="0x0000000f" online_cpuset="0x00000007" allowed_cpuset="0xf...f">
<distances nbobjs="2" relative_depth="1" latency_base="10.0"><latency value="1.0"/><latency value="2.1"/><latency value="2.1"/><latency value="1.0"/></distances>
<object type="NUMANode" os_index="0" cpuset="0x00000003" local_memory="1073741824"><object type="Socket" os_index="0" cpuset="0x00000003">
 <object type="Cache" cpuset="0x00000003" depth="2" cache_type="0">
 <object type="Core" cpuset="0x1"><object type="PU" os_index="0" cpuset="0x1"/></object><object type="Core" cpuset="0x2"><object type="PU" os_index="1" cpuset="0x2"/></object></object></object></object>
<object type="NUMANode" os_index="1" cpuset="0x0000000c" local_memory="1073741824"><object type="Socket" os_index="1" cpuset="0x0000000c">
 <object type="Cache" cpuset="0x0000000c" depth="2" cache_type="0">
 <object type="Core" cpuset="0x4"><object type="PU" os_index="2" cpuset="0x4"/></object><object type="Core" cpuset="0x8"><object type="PU" os_index="3" cpuset="0x8"/></object></object></object></object>
</object></topology>`

func TestXMLOfLstopo(t *testing.T) {
	top, err := ReadXML(strings.NewReader(xmlNew))
	require.NoError(t, err)
	require.Equal(t, strings.Fields("2 2 2 2 2 4 6 0 5"), top.summary()[:9], "%q", top.Notes)
	require.Equal(t, "smt/EE smt/PP llc/PP remote-21/EP", top.summary()[9])
	require.Equal(t, "made up, Linux 6.1", top.Title())
	require.Empty(t, top.Notes)
	require.NoError(t, top.WriteText(new(bytes.Buffer)))

	top, err = ReadXML(strings.NewReader(xmlOld))
	require.NoError(t, err)
	require.Equal(t, strings.Fields("2 2 2 2 2 3 3 1 3"), top.summary()[:9], "%q", top.Notes)
	require.Equal(t, "llc remote-21", top.summary()[9])
	require.Equal(t, []int{3}, top.Offline)
}

func TestXMLThatIsNone(t *testing.T) {
	for text, want := range map[string]string{
		"": "no file of lstopo", "<topology></topology>": "it has no object",
		`<topology><object type="Machine"/></topology>`: "names no CPU",
	} {
		_, err := ReadXML(strings.NewReader(text))
		require.ErrorContains(t, err, want)
	}
}

// FuzzXML checks that arbitrary bytes in a file never cause anything worse than an error.
func FuzzXML(f *testing.F) {
	f.Add(xmlNew)
	f.Add(xmlOld)
	f.Fuzz(func(t *testing.T, text string) {
		if top, err := ReadXML(strings.NewReader(text)); err == nil {
			require.NoError(t, top.WriteText(new(bytes.Buffer)))
		}
	})
}
