package shm

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParsePolicy(t *testing.T) {
	for text, want := range map[string]Policy{
		"":                        {},
		"default":                 {},
		"local":                   {PolicyLocal, nil},
		"bind:1":                  {PolicyBind, []int{1}},
		"preferred:1023":          {PolicyPreferred, []int{1023}},
		"interleave:0-1":          {PolicyInterleave, []int{0, 1}},
		"preferred-many:0,2-4":    {PolicyPreferredMany, []int{0, 2, 3, 4}},
		"weighted-interleave:0-1": {PolicyWeightedInterleave, []int{0, 1}},
		"bind:3,1,1-2":            {PolicyBind, []int{1, 2, 3}},
	} {
		got, err := ParsePolicy(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		again, err := ParsePolicy(got.String())
		require.NoError(t, err, text)
		require.Equal(t, want, again, text)
	}
	for _, text := range []string{
		"bind", "bind:", "bind:x", "bind:-1", "bind:1-", "bind:2-1", "bind:1024", "bind:0-99999999999",
		"preferred:0,1", "default:0", "local:0", "near:0", "Bind:0", "bind:0,", "bind: 0", ":0",
	} {
		_, err := ParsePolicy(text)
		require.ErrorIs(t, err, syscall.EINVAL, text)
		require.ErrorContains(t, err, text)
	}
}

func TestPolicyString(t *testing.T) {
	require.Equal(t, "default", Policy{}.String())
	require.Equal(t, "bind:0-2,5,7-8", Policy{PolicyBind, []int{8, 5, 0, 1, 2, 7, 1}}.String())
	require.Equal(t, "PolicyMode(9)", PolicyMode(9).String())
	require.Equal(t, "HugePages(-1)", HugePages(-1).String())
}

func TestPolicyMismatch(t *testing.T) {
	for _, c := range []struct {
		policy string
		pages  map[int]int
		want   string
	}{
		{"default", map[int]int{3: 4}, ""},
		{"bind:0-1", map[int]int{1: 4}, ""},
		{"bind:0-1", map[int]int{1: 4, 2: 3}, "3 of 7 pages are on other nodes"},
		{"preferred:1", map[int]int{0: 1, 1: 9}, "1 of 10 pages are on other nodes"},
		{"preferred-many:1,3", map[int]int{3: 9}, ""},
		{"interleave:0-1", map[int]int{0: 2, 1: 2}, ""},
		{"interleave:0-1", map[int]int{0: 4}, "node 1 has none of 4 pages"},
		{"interleave:0-1", map[int]int{0: 1}, ""},
		{"interleave:0-1", nil, ""},
		{"weighted-interleave:0-1", map[int]int{0: 4}, ""},
		{"local", map[int]int{7: 4}, ""},
	} {
		p, err := ParsePolicy(c.policy)
		require.NoError(t, err)
		require.Equal(t, c.want, p.mismatch(c.pages), "%s %v", c.policy, c.pages)
	}
}

func FuzzParsePolicy(f *testing.F) {
	for _, s := range []string{"", "bind:1", "interleave:0-3,6", "preferred-many:1-", "default:"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePolicy(s)
		if err != nil {
			require.ErrorIs(t, err, syscall.EINVAL)
			require.Zero(t, p)
			return
		}
		require.NoError(t, p.check())
		again, err := ParsePolicy(p.String())
		require.NoError(t, err)
		require.Equal(t, p, again)
	})
}
