package session

import "strconv"

// Numbered returns the constant of a public type for a number in a script's reply. list has the constants in the order
// of the numbers.
func Numbered[T ~string](number int64, list []T) T {
	if number >= 0 && number < int64(len(list)) {
		return list[number]
	}
	return T("number " + strconv.FormatInt(number, 10)) // a number of a later release
}
