package stock

// filterBits is how many bits a filter has for each text. Of the texts that were not put in, about 1 in 400 looks as if it
// were.
const filterBits = 14

// filter is a set of texts that may seem to have more in it than was put in, and never less: a Bloom filter whose bits of one
// text are all in one block of 32 bytes, so that a look costs one cache line. (F. Putze, P. Sanders, J. Singler,
// "Cache-, Hash- and Space-Efficient Bloom Filters", 2007, in the form that Apache Parquet gave it.)
type filter struct{ blocks []block256 }

type block256 [8]uint32

// newFilter is an empty filter for n texts.
func newFilter(n int64) *filter {
	return &filter{make([]block256, n*filterBits/256+1)}
}

// Odd numbers, one for each word of a block: what a text's hash times it has in its upper five bits is the bit.
var filterOdds = block256{0x9e3779b1, 0x85ebca77, 0xc2b2ae3d, 0x27d4eb2f, 0x165667b1, 0xb5297a4d, 0x68e31da5, 0x1b56c4e9}

func (f *filter) add(s string) {
	at, x := f.at(s)
	for i, odd := range filterOdds {
		at[i] |= 1 << (x * odd >> 27)
	}
}

// has reports whether s may have been put in.
func (f *filter) has(s string) bool {
	at, x := f.at(s)
	for i, odd := range filterOdds {
		if at[i]&(1<<(x*odd>>27)) == 0 {
			return false
		}
	}
	return true
}

// at is the block of s, and the hash that chooses the bits in it.
func (f *filter) at(s string) (*block256, uint32) {
	h := hash64(s)
	return &f.blocks[(h>>32)*uint64(len(f.blocks))>>32], uint32(h)
}

// hash64 hashes s. Its lower bits are as good as its upper ones.
func hash64(s string) uint64 {
	h := uint64(14695981039346656037) // FNV-1a, whose lower bits alone would do neither
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
