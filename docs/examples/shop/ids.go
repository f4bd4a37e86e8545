package main

import "strings"

// An order has one id, which the customer's client makes before the first request. All other ids follow from it, so whoever repeats
// a step, in whatever process, repeats it under the same id, and the stock and the bank know it again:
//
//	order id      the id of the reservation, from Reserve to ReturnOnce
//	order/late    the reservation that a late payment takes
//	order/pay     the id of the payment, and of its refund, at the bank
const (
	lateSuffix = "/late"
	paySuffix  = "/pay"
)

func lateID(order string) string    { return order + lateSuffix }
func paymentID(order string) string { return order + paySuffix }

// orderOf is the order that an id of the stock belongs to.
func orderOf(id string) string { return strings.TrimSuffix(id, lateSuffix) }
