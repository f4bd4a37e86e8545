package rcounter

import (
	"context"
)

func (k *Counter) IDKeys(id string) (first, second string) {
	keys := k.idKeys(id)
	return keys[1], keys[2]
}

func (k *Counter) AddOnceAs(ctx context.Context, call, id string, d int64) (v int64, replayed bool, err error) {
	return k.addOnce(ctx, call, id, d)
}
