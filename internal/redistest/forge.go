package redistest

import (
	"context"

	"github.com/redis/rueidis"
)

// Forged is a client on which every script's reply is {1}, whatever it was to say.
type Forged struct{ rueidis.Client }

// Do is the client's, but for scripts.
func (f Forged) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	switch cmd.Commands()[0] {
	case "EVALSHA", "EVAL":
		return f.Client.Do(ctx, f.B().Eval().Script("return {1}").Numkeys(0).Build())
	}
	return f.Client.Do(ctx, cmd)
}
