-- Every bid with the value that a bounded side input has for its auction.
SELECT bid.auction, bid.bidder, bid.price, bid.date_time, side_input.value
FROM bid
JOIN side_input ON bid.auction % 10000 = side_input.key
