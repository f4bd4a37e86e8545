package redistest

import (
	"context"

	"github.com/redis/rueidis"
)

// Forged is a client on which the reply of each script is {1}.
type Forged struct{ rueidis.Client }

// Do runs a command on the server, and returns {1} for a script.
func (f Forged) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	switch cmd.Commands()[0] {
	case "EVALSHA", "EVAL":
		return f.Client.Do(ctx, f.B().Eval().Script("return {1}").Numkeys(0).Build())
	}
	return f.Client.Do(ctx, cmd)
}
