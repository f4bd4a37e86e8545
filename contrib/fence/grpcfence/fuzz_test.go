package grpcfence

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"
)

func FuzzMetadata(f *testing.F) {
	f.Add("7", "8")
	f.Add("-1", "\x00")
	f.Fuzz(func(t *testing.T, first, second string) {
		for _, values := range []metadata.MD{{Key: {first}}, {Key: {first, second}}, {}} {
			token, err := received(metadata.NewIncomingContext(context.Background(), values))
			if err == nil {
				require.NoError(t, token.Check())
				require.Len(t, values[Key], 1)
			}
		}
	})
}
