package redpacket

import (
	"context"

	"github.com/redlatch/redlatch/internal/script"
)

// GrabEach grabs for several users in one call.
func (p *Packet) GrabEach(ctx context.Context, users ...string) ([]Share, error) {
	return p.grab(ctx, users)
}

// SendAs is Send with an id and shares of the test's choice, in parts of such a size; the parts before from are left
// out.
func (p *Packet) SendAs(ctx context.Context, id string, o Spec, shares []int64,
	from, part int) (epoch int64, err error) {
	if err := o.check(); err != nil {
		return 0, err
	}
	for at := from; at < len(shares); at += part {
		if epoch, err = p.sendPart(ctx, id, o, at, shares[at:min(at+part, len(shares))]); err != nil {
			return epoch, err
		}
	}
	return epoch, nil
}

// Source is the text of a script.
func Source(file string) string {
	text, err := script.Compose(files, file)
	if err != nil {
		panic(err)
	}
	return text
}
