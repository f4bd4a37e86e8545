package main

// An order has one id, which the customer's client makes before the first request. It is the id of the reservation,
// from Reserve to Return, and that of the payment and its refund at the bank follows from it. So a process that
// repeats a step, its own or another's, repeats it under the same id, and the stock and the bank know it again.

const paySuffix = "/pay"

func paymentID(order string) string { return order + paySuffix }
