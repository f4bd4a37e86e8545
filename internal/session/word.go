package session

import "strconv"

// Numbered is the constant of a public type that a script answers as a number, of a list in the order of the numbers.
func Numbered[T ~string](number int64, list []T) T {
	if number >= 0 && number < int64(len(list)) {
		return list[number]
	}
	return T("number " + strconv.FormatInt(number, 10)) // of a later release
}
