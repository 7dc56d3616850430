-- Bids on a fixed selection of auctions.
SELECT auction, price
FROM bid
WHERE auction % 123 = 0
