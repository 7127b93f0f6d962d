package diagnose

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestQuote checks that Quote turns any text, such as the name of an object, into one word of a shell command.
func TestQuote(t *testing.T) {
	for text, want := range map[string]string{
		"ledger": "ledger", "a b": "'a b'", "": "''", "it's": `'it'\''s'`, "$(reboot)": "'$(reboot)'", "/dev/shm/x-1.2": "/dev/shm/x-1.2",
	} {
		require.Equal(t, want, Quote(text))
		out, err := exec.Command("sh", "-c", "printf %s "+Quote(text)).Output()
		require.NoError(t, err)
		require.Equal(t, text, string(out))
	}
}
