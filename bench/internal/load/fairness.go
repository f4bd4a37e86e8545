package load

// Jain is Jain's fairness index of how much each worker got: 1 if all got the same, 1/n if one got everything.
// Workers who all got nothing were treated alike: 1.
func Jain(shares []int64) float64 {
	var sum, squares float64
	for _, s := range shares {
		sum += float64(s)
		squares += float64(s) * float64(s)
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(shares)) * squares)
}
